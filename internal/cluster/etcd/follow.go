package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"fairlead/internal/cluster/kv"
)

// pageLength is how many keys one read returns.
const pageLength = 1000

// pageLimit is how long one server has for a page, or a transaction without changes. All of them
// together have 2 × silence for a page.
func (s *Store) pageLimit() time.Duration { return s.silence * 3 / 5 }

// askEvery is how often a watch asks whether the server is there. A watch that is cut off has no
// error.
func (s *Store) askEvery() time.Duration { return s.silence * 2 / 5 }

// List returns all entries at one revision, in the order of their keys, and the id of the etcd that
// has them.
func (s *Store) List(ctx context.Context) (etcd uint64, revision int64, entries []kv.Entry, err error) {
	end := clientv3.GetPrefixRangeEnd(s.prefix)
	for from := s.prefix; ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageLength)}
		if revision > 0 {
			options = append(options, clientv3.WithRev(revision))
		}
		page, err := s.get(ctx, from, options...)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("list entries: %w", err)
		}
		if revision == 0 {
			etcd, revision = page.Header.ClusterId, page.Header.Revision
			entries = make([]kv.Entry, 0, page.Count)
		}
		if page.Header.ClusterId != etcd {
			return 0, 0, nil, fmt.Errorf("list entries: %w", kv.ErrOtherEtcd)
		}
		for _, pair := range page.Kvs {
			entries = append(entries, s.entry(pair))
		}
		if !page.More || len(page.Kvs) == 0 {
			return etcd, revision, entries, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// Holds reports whether the entry was the newest of its key at a revision. Returns kv.ErrCompacted if
// the store cannot know, and kv.ErrFuture if it has not reached the revision.
func (s *Store) Holds(ctx context.Context, e kv.Entry, at int64) (bool, error) {
	page, err := s.get(ctx, s.prefix+e.Key, clientv3.WithRev(at))
	if errors.Is(err, kv.ErrFuture) { // which does not say which etcd answers
		if newest, failed := s.get(ctx, s.prefix+e.Key); failed == nil && s.check(newest.Header) != nil {
			page, err = newest, nil
		}
	}
	if err == nil {
		err = s.check(page.Header)
	}
	if err != nil {
		return false, fmt.Errorf("read %s at revision %d: %w", e.Key, at, err)
	}
	return len(page.Kvs) == 1 && page.Kvs[0].ModRevision == e.Revision &&
		string(page.Kvs[0].Value) == string(e.Value), nil
}

func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	var page *clientv3.GetResponse
	err := s.do(ctx, request{limit: 2 * s.silence, attempt: s.pageLimit(),
		call: func(ctx context.Context, c *clientv3.Client) (err error) {
			page, err = c.Get(ctx, key, options...)
			return err
		}})
	return page, err
}

// Watch calls handle for the changes after a revision, and at least every few seconds, until ctx
// ends, handle returns an error, or the server in use fails. Then another server is in use. Returns
// kv.ErrCompacted if the changes are not known any more, and kv.ErrUnavailable (errors.Is) if the server does not answer.
func (s *Store) Watch(ctx context.Context, after int64, handle func(kv.Batch) error) error {
	at, n := s.current()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := s.watch(ctx, at, after, handle)
	switch {
	case needsLogin(err):
		s.logOut()
	case errors.Is(err, rpctypes.ErrCompacted):
		err = kv.ErrCompacted
	default:
		s.leave(n)
	}
	var gone goneError
	switch {
	case errors.As(err, &gone):
		return fmt.Errorf("watch etcd: %w: %s: %w", kv.ErrUnavailable, at.url, unanswered(gone.error))
	case refused(err):
		err = refusal(err)
	}
	return fmt.Errorf("watch etcd at %s: %w", at.url, err)
}

// goneError is the error of a watch whose server does not answer any more.
type goneError struct{ error }

func (s *Store) watch(ctx context.Context, at server, after int64, handle func(kv.Batch) error) error {
	if err := at.connect(ctx); err != nil {
		return goneError{err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opening := time.AfterFunc(s.pageLimit(), cancel) // Watch returns when the server has answered
	ctx, err := s.logIn(ctx, at.client)
	if err != nil {
		return err
	}
	responses := at.client.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithCreatedNotify())
	opening.Stop()
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		at.client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready)
	}()
	return s.receive(ctx, at.client, responses, broken, handle)
}

// receive handles the responses of a watch until it ends, its connection is broken, or the server is
// silent. It handles those that have arrived before the connection broke.
func (s *Store) receive(ctx context.Context, client progress, responses <-chan clientv3.WatchResponse,
	broken <-chan struct{}, handle func(kv.Batch) error) error {
	ask := time.NewTicker(s.askEvery())
	defer ask.Stop()
	for heard := time.Now(); ; {
		r, arrived, err := next(ctx, responses, broken, ask.C)
		switch {
		case err != nil:
			return err
		case !arrived && time.Since(heard) > s.silence:
			return goneError{errors.New("it does not answer")}
		case !arrived:
			if err = askProgress(ctx, client); err != nil {
				err = goneError{err}
			}
		default:
			heard = time.Now()
			if err = r.Err(); err != nil && !refused(err) {
				return goneError{err}
			}
			if err == nil {
				err = s.check(r.Header)
			}
			if err == nil {
				err = handle(s.batch(r))
			}
		}
		if err != nil {
			return err
		}
	}
}

// next waits for the next response. arrived is false if it is time to ask whether the server is there.
// An error ends the watch, but only when all responses that have arrived were returned.
func next(ctx context.Context, responses <-chan clientv3.WatchResponse, broken <-chan struct{},
	ask <-chan time.Time) (r clientv3.WatchResponse, arrived bool, err error) {
	select {
	case r, arrived = <-responses:
		if !arrived {
			err = goneError{errors.New("it ended the watch")}
		}
		return r, arrived, err
	case <-ask:
	case <-broken:
		err = goneError{errors.New("the connection is broken")}
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case r, arrived = <-responses:
		if arrived {
			return r, true, nil
		}
	default:
	}
	return r, false, err
}

// progress is a client that can ask a server to answer on the stream of a watch.
type progress interface {
	RequestProgress(ctx context.Context) error
}

// askProgress asks the server to answer on the stream of the watch.
func askProgress(ctx context.Context, client progress) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return client.RequestProgress(ctx)
}

func (s *Store) batch(r clientv3.WatchResponse) kv.Batch {
	b := kv.Batch{Newest: r.Header.GetRevision()}
	for _, event := range r.Events {
		e := s.entry(event.Kv)
		if event.Type == mvccpb.Event_DELETE {
			e.Value = nil
		}
		b.Changes = append(b.Changes, e)
	}
	return b
}
