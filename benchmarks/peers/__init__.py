"""Training side by side with Stable-Baselines3: the same steps, the same return."""
