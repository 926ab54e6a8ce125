package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"fairlead/internal/cluster/kv"
)

const (
	// connectLimit is how long a server has to accept a connection before the next one is tried.
	connectLimit = 300 * time.Millisecond
	// pause is the time between two attempts.
	pause = 20 * time.Millisecond
)

// sentKey is the key of the context's *atomic.Bool that sentHandler sets.
type sentKey struct{}

// sentHandler notes that gRPC has given a request to the connection.
type sentHandler struct{}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.OutHeader, *stats.OutPayload:
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}

// request is a call of etcd.
type request struct {
	// limit is how long all attempts may take together, and attempt how long one of a read may take.
	limit, attempt time.Duration
	// write requests are not repeated if they may have been sent.
	write bool
	call  func(context.Context, *clientv3.Client) error
}

// do makes a request. It tries one server after the other until one answers, refuses the request, or
// the time is over.
func (s *Store) do(ctx context.Context, r request) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	last := ctx.Err()
	for logins := 0; ctx.Err() == nil; {
		at, n := s.current()
		sent, err := s.try(ctx, at, r)
		switch {
		case err == nil:
			return nil
		case needsLogin(err) && logins < 2:
			logins++
			s.logOut()
			continue
		case refused(err):
			return refusal(err)
		}
		s.leave(n)
		if errors.Is(err, kv.ErrOtherEtcd) {
			return fmt.Errorf("%s: %w", at.url, err)
		}
		last = fmt.Errorf("%s: %w", at.url, unanswered(err))
		if r.write && sent && !errors.Is(err, rpctypes.ErrNoLeader) {
			return fmt.Errorf("%w: %w", kv.ErrUnknown, last)
		}
		kv.Wait(ctx, pause)
	}
	return fmt.Errorf("%w: %w", kv.ErrUnavailable, last)
}

// try makes one attempt with one server, and reports whether the request may have been sent.
func (s *Store) try(ctx context.Context, at server, r request) (sent bool, err error) {
	if err := at.connect(ctx); err != nil {
		return false, err
	}
	if !r.write {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.attempt)
		defer cancel()
	}
	ctx, err = s.logIn(ctx, at.client)
	if err != nil {
		return false, err
	}
	var flag atomic.Bool
	err = r.call(context.WithValue(ctx, sentKey{}, &flag), at.client)
	return flag.Load(), err
}

// connect waits until the server has accepted a connection, for a short time. The error says what to correct.
func (at server) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn := at.client.ActiveConnection()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return at.reach.failed()
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return at.reach.silent()
		}
	}
}

// logIn adds the token of the user to a context, and asks for a server with a leader.
func (s *Store) logIn(ctx context.Context, client *clientv3.Client) (context.Context, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	s.mu.Lock()
	token, none := s.token, s.noAuth || s.access.User == ""
	s.mu.Unlock()
	if none {
		return ctx, nil
	}
	if token == "" {
		response, err := client.Authenticate(ctx, s.access.User, s.access.Password)
		s.mu.Lock()
		defer s.mu.Unlock()
		if errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			s.noAuth = true
			return ctx, nil
		}
		if err != nil {
			return nil, err
		}
		token = response.Token
		s.token = token
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token), nil
}

// logOut forgets the token, so that the next request asks for another.
func (s *Store) logOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.noAuth = "", false
}

// needsLogin reports whether etcd has refused the token.
func needsLogin(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) ||
		errors.Is(err, rpctypes.ErrUserEmpty)
}

// refused reports whether etcd has answered that it did not execute the request.
func refused(err error) bool {
	var answer rpctypes.EtcdError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code() {
	case codes.Unavailable, codes.Unknown, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// unanswered returns the error of a request that etcd has not executed as far as this host knows, in words.
func unanswered(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrTimeout),
		errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail), errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost):
		return fmt.Errorf("%w: %s", err, noQuorum)
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return errors.New("it does not answer in time")
	}
	return err
}

// noQuorum is what to do if etcd cannot elect a leader.
const noQuorum = "more than half of etcd's servers must run and reach each other: start those that are missing"

// refusal returns the error for callers.
func refusal(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return kv.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return kv.ErrFuture
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: its quota is reached: compact and defragment it, then disarm the alarm", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: grant the user read and write access to the cluster's prefix", err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%w: it wants a user: give --etcd-user and --etcd-password-file, or a client certificate with "+
			"the name of a user", err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("%w: correct --etcd-user and --etcd-password-file", err)
	}
	return err
}
