"""Transactional, Kafka Streams compatible state stores: process, verify, restore and validate them."""
