"""What is known of tables before anything is computed: schemas, geographies, layouts, zeros, noise."""
