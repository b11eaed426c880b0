module tpu-multislice/tools/monitoring

go 1.26

tool github.com/GoogleCloudPlatform/prometheus-engine/pkg/operator/apis/monitoring

require github.com/GoogleCloudPlatform/prometheus-engine v0.17.2 // indirect
