"""Packages of dumps: ZIP files written and read within bounds, member names, and the manifests they hold."""
