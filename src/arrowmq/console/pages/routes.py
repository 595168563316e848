"""Which page is at which address. A page calls the API's functions and hands what they answer to its template."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from arrowmq.console.api import topics
from arrowmq.console.api.cluster import metrics, overview, pairs, settings, users
from arrowmq.console.api.consumers import clients, groups
from arrowmq.console.api.declare import ListQuery, Struct
from arrowmq.console.api.messages import finding, letters, life, scheduled, trace, transactions
from arrowmq.console.api.openapi import description
from arrowmq.console.errors import Problem, problem_of
from arrowmq.console.pages.render import View
from arrowmq.console.settings_catalog import catalog

Page = Callable[[View], Awaitable[Response]]
JOBS_SHOWN = 10
AUDIT_SHOWN = 20
TOPICS_OFFERED = 500


def listing(name: str, ask: Callable[..., Awaitable[object]], kind: type[Struct]) -> Page:
    """A page that is one list."""

    async def page(view: View) -> Response:
        query = view.query(kind)
        return view.render(f"{name}.html", page=name, query=query, answer=await ask(view.call, query))

    return page


async def overview_page(view: View) -> Response:
    return view.render("overview.html", page="overview", now=await overview.overview(view.call))


async def topic_page(view: View) -> Response:
    query = view.query(topics.TopicQuery)
    answer = await topics.topic(view.call, query)
    producers = []
    if answer.problem is None:
        producers = (await topics.topic_producers(view.call, query)).rows
    return view.render("topic.html", page="topics", answer=answer, producers=producers)


async def group_page(view: View) -> Response:
    answer = await groups.group(view.call, view.query(groups.GroupQuery))
    return view.render("group.html", page="groups", answer=answer)


async def messages_page(view: View) -> Response:
    query = view.query(finding.MessagesQuery)
    snapshot = await view.console.gatherer.fresh()
    own = [name for name, state in sorted(snapshot.topics.items()) if state.kind not in ("system", "retry", "dead")]
    answer, problem = None, None
    if query.topic or query.id:
        try:
            answer = await finding.messages(view.call, query)
        except Exception as error:
            problem = problem_of(error)
    status = 200 if problem is None else problem.status
    shown = own[:TOPICS_OFFERED]
    return view.render(
        "messages.html", status, page="messages", query=query, answer=answer, problem=problem, topics=shown
    )


async def message_page(view: View) -> Response:
    query = view.query(finding.MessageQuery)
    found = finding.shown(await finding.find(view.call, query))
    told, problem = None, ""
    try:
        told = await life.message_life(view.call, finding.MessageQuery(id=query.id, topic=query.topic))
    except Exception as error:
        problem = problem_of(error).sentence
    return view.render("message.html", page="messages", message=found, life=told, life_problem=problem)


async def letters_page(view: View) -> Response:
    query = view.query(ListQuery)
    answer = await letters.letter_groups(view.call, query)
    jobs = (await letters.list_jobs(view.call, ListQuery(size=JOBS_SHOWN))).rows
    return view.render("letters.html", page="letters", query=query, answer=answer, jobs=jobs)


async def letters_group_page(view: View) -> Response:
    query = view.query(letters.LettersQuery)
    answer = await letters.letters(view.call, query)
    jobs = (await letters.list_jobs(view.call, ListQuery(size=100))).rows
    of_group = [job for job in jobs if job.group == query.group][:JOBS_SHOWN]
    return view.render("letters_group.html", page="letters", query=query, answer=answer, jobs=of_group)


async def letter_page(view: View) -> Response:
    query = view.query(letters.LetterQuery)
    answer = await letters.letter(view.call, query)
    return view.render("letter.html", page="letters", group=query.group, letter=answer.letter, message=answer.message)


async def job_page(view: View) -> Response:
    query = view.query(letters.ResultsQuery)
    job = await letters.get_job(view.call, letters.JobQuery(job=query.job))
    results = await letters.job_letters(view.call, query)
    return view.render("job.html", page="letters", job=job, query=query, results=results)


async def trace_page(view: View) -> Response:
    query = view.query(trace.TraceQuery)
    answer, problem = None, None
    if query.id:
        try:
            answer = await trace.trace(view.call, query)
        except Exception as error:
            problem = problem_of(error)
    status = 200 if problem is None else problem.status
    return view.render("trace.html", status, page="trace", query=query, answer=answer, problem=problem)


async def cluster_page(view: View) -> Response:
    return view.render("cluster.html", page="cluster", answer=await pairs.cluster(view.call))


async def client_page(view: View) -> Response:
    answer = await clients.client(view.call, view.query(clients.ClientQuery))
    return view.render("client.html", page="clients", answer=answer)


async def users_page(view: View) -> Response:
    answer = await users.users(view.call)
    why, problem = None, ""
    if "username" in view.request.query_params:
        try:
            why = await users.why_denied(view.call, view.query(users.WhyQuery))
        except Problem as wrong:
            problem = wrong.sentence
    return view.render("users.html", page="users", answer=answer, why=why, why_problem=problem)


async def settings_page(view: View) -> Response:
    query = view.query(settings.SettingsQuery)
    answer = await settings.settings(view.call, query)
    known = catalog(view.words.language)
    meanings = {row.key: known[row.key].meaning or "" for row in answer.rows if row.key in known}
    audit = (await overview.audit(view.call, ListQuery(size=AUDIT_SHOWN))).rows
    brokers = view.console.gatherer.now.brokers
    return view.render(
        "settings.html", page="settings", query=query, answer=answer, meanings=meanings, audit=audit, brokers=brokers
    )


async def metrics_page(view: View) -> Response:
    query = view.query(settings.SettingsQuery)
    answer = await metrics.metrics(view.call, query)
    brokers = view.console.gatherer.now.brokers
    return view.render(
        "metrics.html", page="metrics", query=query, answer=answer, values=answer.values, brokers=brokers
    )


async def api_page(view: View) -> Response:
    return view.render("api.html", page="api", described=msgspec.json.decode(description()))


PAGES: dict[str, Page] = {
    "/": overview_page,
    "/topics": listing("topics", topics.topics, topics.TopicsQuery),
    "/topics/{topic}": topic_page,
    "/groups": listing("groups", groups.groups, groups.GroupsQuery),
    "/groups/{group}": group_page,
    "/messages": messages_page,
    "/messages/{id}": message_page,
    "/letters": letters_page,
    "/letters/{group}": letters_group_page,
    "/letters/{group}/{place}": letter_page,
    "/jobs/{job}": job_page,
    "/scheduled": listing("scheduled", scheduled.scheduled, scheduled.ScheduledQuery),
    "/transactions": listing("transactions", transactions.transactions, ListQuery),
    "/trace": trace_page,
    "/cluster": cluster_page,
    "/clients": listing("clients", clients.clients, clients.ClientsQuery),
    "/clients/{group}/{clientId}": client_page,
    "/users": users_page,
    "/settings": settings_page,
    "/metrics": metrics_page,
    "/api": api_page,
}
