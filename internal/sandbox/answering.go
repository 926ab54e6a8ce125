package sandbox

import (
	"context"
	"errors"
)

// errAnswering is the error of a request with a context of Answering. It is a mistake in the program, not in the host.
var errAnswering = errors.New("an engine waits for this answer: no engine may be asked meanwhile")

type answering struct{}

// Answering returns a context for the answer to a request of a container engine. With
// this context, and those derived from it, this package sends no request to any engine:
// each one fails at once. The engine may hold its locks until it has the answer, and
// when it starts, it answers no request before its containers are restored. A question
// would then last until its time limit, and the engine would wait as long.
func Answering(ctx context.Context) context.Context { return context.WithValue(ctx, answering{}, true) }

// isAnswering reports whether the context, or one that it is derived from, is of Answering.
func isAnswering(ctx context.Context) bool { return ctx.Value(answering{}) != nil }
