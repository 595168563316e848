"""Users and rights, judged case by case: the same questions to Apache's broker and to ours.

In: users with policies, requests, resources, sources, multiplied out (`cases.py`); a broker's address.
Out: for each case the answer's code and, where it is a refusal, its remark (`asking.py`).
"""
