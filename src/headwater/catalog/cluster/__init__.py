"""The catalog on a search cluster: OpenSearch or Elasticsearch."""
