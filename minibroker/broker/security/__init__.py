"""Security: TLS, authentication (SASL) and authorization (ACLs)."""
