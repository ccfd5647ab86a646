"""HTTP requests and responses: scheduling, throttling, authentication, transport over libcurl."""
