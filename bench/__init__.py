"""Ratios against peers and limits, each pair measured in the same run (`make bench`)."""
