"""A remark that Apache's broker leaves on some successful answers: it sets the code and forgets the text it began with.

Tools that compare conversations see it, so it stays.
"""

NOT_SET = "not set any response code"
