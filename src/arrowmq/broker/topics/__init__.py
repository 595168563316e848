"""The topics of a broker: the table in `config/topics.json`, its administration, and how long creations took.

In: requests of administrators, first messages of new topics. Out: topic settings for sends, pulls and the registration.
"""
