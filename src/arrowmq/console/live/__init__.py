"""What the console knows by itself: one gatherer asks the brokers, however many pages are open.

In: answers of NameServers and brokers. Out: a snapshot (`gatherer`), the last hour (`history`), events (`hub`).
"""
