"""Archives: the records of topics as Parquet files, or in tables of Iceberg and Delta, and back to a broker."""
