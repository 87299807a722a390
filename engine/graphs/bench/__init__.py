"""What ``ddtree bench gpu`` measures: kernels under graph replay, and whole steps with a real model."""
