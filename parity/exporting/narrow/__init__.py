"""Programs on their way out whose operations compute in a small type, some of them kept in float32."""
