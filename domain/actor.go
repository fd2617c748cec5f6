package domain

import (
	"integrityledger/domain/say"
)

// ActorKind is the kind of an Actor.
type ActorKind uint8

// Kinds of actors. A switch on them must name every kind (linter exhaustive).
const (
	ActorNobody ActorKind = iota
	ActorKey
	ActorMember
	ActorOperator
	ActorSystem // the service itself
)

// Actor is the subject of an action: an API key, a member, the operator or the service itself. Actors are equal if
// their texts are equal. The zero Actor names no actor and may not act.
type Actor struct {
	kind ActorKind
	id   [16]byte // of the key or the member
	text string   // set if it names no actor; a damaged log may hold any text, which an audit hashes and shows
}

// OperatorActor and SystemActor act without a key and without a member. Go has no struct constants, so they are
// variables.
var (
	OperatorActor = Actor{kind: ActorOperator}
	SystemActor   = Actor{kind: ActorSystem}
)

// KeyActor returns the actor for an API key. The zero key gives the zero Actor.
func KeyActor(id KeyID) Actor {
	if id.IsZero() {
		return Actor{}
	}
	return Actor{kind: ActorKey, id: id}
}

// MemberActor returns the actor for a member who acts without a key. The zero member gives the zero Actor.
func MemberActor(id MemberID) Actor {
	if id.IsZero() {
		return Actor{}
	}
	return Actor{kind: ActorMember, id: id}
}

// ParseActor reads the output of String. A text that names no actor gives an Actor that may not act and keeps the text.
func ParseActor(text string) Actor {
	switch {
	case text == OperatorActor.String():
		return OperatorActor
	case text == SystemActor.String():
		return SystemActor
	}
	if id, err := ParseID[KeyID](text); err == nil && !id.IsZero() {
		return KeyActor(id)
	}
	if id, err := ParseID[MemberID](text); err == nil && !id.IsZero() {
		return MemberActor(id)
	}
	return Actor{text: text}
}

// Kind returns the kind of the actor.
func (a Actor) Kind() ActorKind { return a.kind }

// Key returns the API key that acts, zero for all other actors.
func (a Actor) Key() (id KeyID) {
	if a.kind == ActorKey {
		id = a.id
	}
	return id
}

// Member returns the member who acts without a key, zero for all other actors.
func (a Actor) Member() (id MemberID) {
	if a.kind == ActorMember {
		id = a.id
	}
	return id
}

// Judged reports whether the actor needs a right to act and has limits. The operator and the service itself do not.
func (a Actor) Judged() bool {
	switch a.kind {
	case ActorOperator, ActorSystem:
		return false
	case ActorKey, ActorMember, ActorNobody:
	}
	return true
}

// String returns the actor's text in the log: the id of a key or a member, "operator" or "system".
func (a Actor) String() string {
	switch a.kind {
	case ActorKey:
		return a.Key().String()
	case ActorMember:
		return a.Member().String()
	case ActorOperator:
		return "operator"
	case ActorSystem:
		return "system"
	case ActorNobody:
	}
	return a.text
}

// AppendText appends what String writes.
func (a Actor) AppendText(dst []byte) ([]byte, error) { return append(dst, a.String()...), nil }

// MarshalText writes what String writes.
func (a Actor) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText is ParseActor; it never fails.
func (a *Actor) UnmarshalText(text []byte) error {
	*a = ParseActor(string(text))
	return nil
}

// Scan reads a text column (sql.Scanner). NULL gives the zero Actor.
func (a *Actor) Scan(column any) error {
	switch text := column.(type) {
	case nil:
		*a = Actor{}
	case string:
		*a = ParseActor(text)
	default:
		return say.Errorf("an actor is a text, not %T", column)
	}
	return nil
}
