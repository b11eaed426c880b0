"""What is watched of a stack while it stands: who is asked for metrics, when somebody is told, what people see."""
