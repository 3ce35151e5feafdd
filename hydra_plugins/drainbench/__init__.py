"""The two classes that Hydra insists on finding in its plugin namespace, nothing else."""
