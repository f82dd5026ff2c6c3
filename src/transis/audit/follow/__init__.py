"""The continuous audit: digests that nodes seal every few seconds, compared while the cluster runs."""
