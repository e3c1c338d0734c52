"""What a task is: its shape, which samples it has, and many tasks as tensors."""
