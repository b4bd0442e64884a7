"""A checkpoint read: schema, metadata and arrays, with a note on whatever was assumed or left out."""
