"""Keys and values whose schemas are in a Schema Registry (docs/schemas.md)."""
