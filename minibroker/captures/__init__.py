"""Reads captures of network traffic, and finds the requests and answers of Kafka in them.

`packets` reads pcap and pcapng files by dpkt (extra `capture`), `tcp_streams` puts the bytes of each connection
together, `tshark_text` reads what tshark has decrypted, and `kafka_streams` finds frames and pairs them.
"""
