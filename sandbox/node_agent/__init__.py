"""The sandbox's kubelet: runs the pods of its fake TPU nodes as processes of this machine."""
