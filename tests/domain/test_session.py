"""Session, given / when / then."""

from bread.domain.session import (
    EndSession,
    OpenSession,
    SessionDeleted,
    SessionOpened,
    SessionTagged,
    session_stream,
)
from bread.runtime.kit import given, session_decider

SESSION = session_decider("s1")
OPENED = SessionOpened(session="s1", tags={"team": "web"})


def test_b3_an_unknown_id_is_opened_with_its_tags() -> None:
    given(SESSION).when(OpenSession("s1", {"team": "web"})).then(OPENED)


def test_b3_an_existing_session_is_reused() -> None:
    given(SESSION, OPENED).when(OpenSession("s1", {})).then()
    given(SESSION, OPENED).when(OpenSession("s1", {"team": "web"})).then()


def test_tags_of_a_later_run_are_added_and_only_what_changed_is_written() -> None:
    history = given(SESSION, OPENED).when(OpenSession("s1", {"team": "ops", "by": "ann"}))
    history = history.then(SessionTagged(tags={"team": "ops", "by": "ann"})).when(OpenSession("s1", {"by": "ann"}))
    assert history.then().state.tags == (("by", "ann"), ("team", "ops"))


def test_b73_a_deleted_session_is_not_used_again() -> None:
    deleted = given(SESSION, OPENED).when(EndSession()).then(SessionDeleted())
    assert deleted.when(OpenSession("s1", {})).raises("SESSION_DELETED").details == {"session_id": "s1"}
    deleted.when(EndSession()).then()
    assert deleted.state.tags == ()


def test_b74_a_cleanup_leaves_its_reason() -> None:
    given(SESSION, OPENED).when(EndSession("cleanup")).then(SessionDeleted(reason="cleanup"))


def test_an_unknown_session_cannot_be_deleted() -> None:
    assert given(SESSION).when(EndSession()).raises("SESSION_NOT_FOUND").details == {"session_id": "s1"}


def test_a_tombstone_alone_says_that_the_session_is_gone() -> None:
    given(SESSION, SessionDeleted()).when(OpenSession("s1", {})).raises("SESSION_DELETED")


def test_the_stream_of_a_session_has_a_name_that_no_other_stream_has() -> None:
    assert session_stream("r1") == "session:r1"
