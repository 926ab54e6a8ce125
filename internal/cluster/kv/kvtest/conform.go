package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// limit is how long the tests wait for what must happen.
const limit = time.Minute

// Node is a node's access to a store.
type Node struct {
	kv.Committer
	// Updates are what the node's mirror delivers.
	Updates <-chan kv.Update
}

// Conform tests what the packages of a cluster rely on. start returns two nodes of a new, empty
// cluster.
func Conform(t *testing.T, start func(*testing.T) (one, two Node)) {
	for name, test := range map[string]func(*subject){
		"conditions": (*subject).conditions, "deletions": (*subject).deletions,
		"comparison": (*subject).comparison, "updates": (*subject).updates, "race": (*subject).race,
		"limits": (*subject).limits, "ended context": (*subject).ended, "busy consumer": (*subject).busy,
	} {
		t.Run(name, func(t *testing.T) {
			one, two := start(t)
			test(&subject{t, one, two})
		})
	}
}

// subject is the store under test.
type subject struct {
	*testing.T
	one, two Node
}

// commit commits a transaction that the store must answer.
func (s *subject) commit(n Node, t kv.Txn) kv.Result {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	result, err := n.Commit(ctx, t)
	if err != nil {
		s.Fatal(err)
	}
	return result
}

// put puts keys without a condition.
func (s *subject) put(n Node, value string, keys ...string) int64 {
	s.Helper()
	var t kv.Txn
	for _, key := range keys {
		t.Then = append(t.Then, kv.Change{Key: key, Value: []byte(value)})
	}
	result := s.commit(n, t)
	if !result.Committed {
		s.Fatalf("a transaction without conditions was not committed: %v", result)
	}
	return result.Revision
}

// until reads a node's updates until one has the revision, and returns it with all changed keys.
func (s *subject) until(n Node, revision int64) (kv.Snapshot, []string) {
	s.Helper()
	deadline := time.After(limit)
	var changed []string
	for {
		select {
		case u, ok := <-n.Updates:
			if !ok {
				s.Fatal("the updates ended")
			}
			changed = append(changed, u.Changed...)
			if u.Snapshot.Revision() >= revision {
				slices.Sort(changed)
				return u.Snapshot, slices.Compact(changed)
			}
		case <-deadline:
			s.Fatalf("no update with revision %d", revision)
		}
	}
}

// content returns the keys and values of a snapshot, and checks that Get and Under agree.
func (s *subject) content(snapshot kv.Snapshot) string {
	s.Helper()
	var text []string
	for e := range snapshot.Under("") {
		if got, ok := snapshot.Get(e.Key); !ok || !cmp.Equal(got, e) {
			s.Errorf("Get(%s) is %v, %v, and Under has %v", e.Key, got, ok, e)
		}
		text = append(text, fmt.Sprintf("%s=%s", e.Key, e.Value))
	}
	return strings.Join(text, " ")
}

func (s *subject) conditions() {
	first := s.put(s.one, "1", "nodes/a", "nodes/b")
	second := s.put(s.two, "2", "nodes/b")
	if second <= first {
		s.Errorf("revision %d does not follow %d", second, first)
	}
	result := s.commit(s.one, kv.Txn{
		If:   []kv.Condition{{Key: "nodes/a", Revision: first}, {Key: "nodes/b", Revision: first}, {Key: "nodes/c"}},
		Then: []kv.Change{{Key: "nodes/b", Value: []byte("3")}}})
	want := kv.Result{Revision: second, Current: []kv.Entry{
		{Key: "nodes/a", Value: []byte("1"), Revision: first}, {Key: "nodes/b", Value: []byte("2"), Revision: second}}}
	if diff := cmp.Diff(want, result); diff != "" {
		s.Errorf("a transaction with a false condition, want (-), got (+):\n%s", diff)
	}
	result = s.commit(s.one, kv.Txn{
		If:   []kv.Condition{{Key: "nodes/a", Revision: first}, {Key: "nodes/b", Revision: second}, {Key: "nodes/c"}},
		Then: []kv.Change{{Key: "nodes/c", Value: []byte("3")}, {Key: "nodes/a"}}})
	if !result.Committed || result.Revision <= second || len(result.Current) > 0 {
		s.Errorf("a transaction with true conditions has the result %v", result)
	}
	if result := s.commit(s.two, kv.Txn{If: []kv.Condition{{Key: "nodes/c"}},
		Then: []kv.Change{{Key: "nodes/d", Value: []byte("4")}}}); result.Committed {
		s.Error("a condition that an existing key does not exist is true")
	}
	snapshot, _ := s.until(s.two, result.Revision)
	if got := s.content(snapshot); got != "nodes/b=2 nodes/c=3" {
		s.Errorf("the store has %s", got)
	}
}

func (s *subject) deletions() {
	put := s.put(s.one, "1", "a", "b")
	none := s.commit(s.one, kv.Txn{Then: []kv.Change{{Key: "c"}}})
	if !none.Committed || none.Revision != put {
		s.Errorf("the deletion of a key that does not exist has the result %v, want revision %d", none, put)
	}
	deleted := s.commit(s.two, kv.Txn{If: []kv.Condition{{Key: "a", Revision: put}}, Then: []kv.Change{{Key: "a"}}})
	again := s.put(s.one, "2", "a")
	if !deleted.Committed || again <= deleted.Revision {
		s.Errorf("the deletion has the result %v, and the next put revision %d", deleted, again)
	}
	snapshot, _ := s.until(s.one, again)
	if got := s.content(snapshot); got != "a=2 b=1" {
		s.Errorf("the store has %s", got)
	}
}

func (s *subject) comparison() {
	put := s.put(s.one, "1", "a")
	result := s.commit(s.two, kv.Txn{If: []kv.Condition{{Key: "a", Revision: put}}})
	if !result.Committed || result.Revision != put {
		s.Errorf("a true comparison has the result %v, want revision %d", result, put)
	}
	result = s.commit(s.two, kv.Txn{If: []kv.Condition{{Key: "a", Revision: put, Value: []byte("1")}}})
	if !result.Committed {
		s.Errorf("a true comparison with a value has the result %v", result)
	}
	result = s.commit(s.two, kv.Txn{If: []kv.Condition{{Key: "a", Revision: put, Value: []byte("2")}}})
	if result.Committed {
		s.Errorf("a comparison with another value has the result %v", result)
	}
	result = s.commit(s.two, kv.Txn{If: []kv.Condition{{Key: "a"}}})
	want := kv.Result{Revision: put, Current: []kv.Entry{{Key: "a", Value: []byte("1"), Revision: put}}}
	if diff := cmp.Diff(want, result); diff != "" {
		s.Errorf("a false comparison, want (-), got (+):\n%s", diff)
	}
}

func (s *subject) updates() {
	first := s.put(s.one, "1", "a", "b")
	snapshot, changed := s.until(s.two, first)
	if diff := cmp.Diff([]string{"a", "b"}, changed); diff != "" {
		s.Errorf("the keys of the first update, want (-), got (+):\n%s", diff)
	}
	second := s.commit(s.one, kv.Txn{Then: []kv.Change{{Key: "a"},
		{Key: "c", Value: []byte("2"), Leased: true}}}).Revision
	later, changed := s.until(s.two, second)
	if diff := cmp.Diff([]string{"a", "c"}, changed); diff != "" {
		s.Errorf("the changed keys, want (-), got (+):\n%s", diff)
	}
	if was, is := s.content(snapshot), s.content(later); was != "a=1 b=1" || is != "b=1 c=2" {
		s.Errorf("the first snapshot has %s and the next %s", was, is)
	}
}

// race lets both nodes increment one number.
func (s *subject) race() {
	const each = 20
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var both sync.WaitGroup
	for _, n := range []Node{s.one, s.two} {
		both.Go(func() {
			var now kv.Entry
			for done := 0; done < each; {
				var number int
				_, _ = fmt.Sscan(string(now.Value), &number) // it is empty before the first
				result, err := n.Commit(ctx, kv.Txn{If: []kv.Condition{{Key: "number", Revision: now.Revision}},
					Then: []kv.Change{{Key: "number", Value: fmt.Append(nil, number+1)}}})
				switch {
				case err != nil:
					s.Error(err)
					return
				case result.Committed:
					done++
					now = kv.Entry{Value: fmt.Append(nil, number+1), Revision: result.Revision}
				default:
					now = result.Current[0]
				}
			}
		})
	}
	both.Wait()
	result := s.commit(s.one, kv.Txn{If: []kv.Condition{{Key: "number"}}})
	if got, want := string(result.Current[0].Value), fmt.Sprint(2*each); got != want {
		s.Errorf("the number is %s, want %s", got, want)
	}
}

func (s *subject) limits() {
	var many kv.Txn
	for n := range kv.MaxOperations {
		key := fmt.Sprint("many/", n)
		many.If = append(many.If, kv.Condition{Key: key})
		many.Then = append(many.Then, kv.Change{Key: key, Value: []byte("1")})
	}
	if result := s.commit(s.one, many); !result.Committed {
		s.Error("the greatest number of operations was not committed")
	}
	s.commit(s.one, kv.Txn{Then: []kv.Change{{Key: "large", Value: make([]byte, kv.MaxBytes-len("large"))}}})
	one := kv.Change{Key: "a", Value: []byte("1")}
	for name, t := range map[string]kv.Txn{
		"129 changes":             {Then: append(slices.Clone(many.Then), one)},
		"129 conditions":          {If: append(slices.Clone(many.If), kv.Condition{Key: "a"})},
		"a key twice":             {Then: []kv.Change{one, one}},
		"a change without key":    {Then: []kv.Change{{Value: []byte("1")}}},
		"a condition without key": {If: []kv.Condition{{}}, Then: []kv.Change{one}},
		"more than 1 MiB":         {Then: []kv.Change{{Key: "large", Value: make([]byte, kv.MaxBytes)}}},
	} {
		result, err := s.one.Commit(context.Background(), t)
		if err == nil || result.Committed || errors.Is(err, kv.ErrUnknown) || errors.Is(err, kv.ErrUnavailable) {
			s.Errorf("%s: %v, %v, want an error", name, result, err)
		}
	}
}

// ended checks that nothing is sent for a context that has ended.
func (s *subject) ended() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.one.Commit(ctx, kv.Txn{Then: []kv.Change{{Key: "a", Value: []byte("1")}}})
	if !errors.Is(err, kv.ErrUnavailable) {
		s.Errorf("the error is %v, want %v", err, kv.ErrUnavailable)
	}
	revision := s.put(s.one, "1", "b")
	snapshot, _ := s.until(s.one, revision)
	if got := s.content(snapshot); got != "b=1" {
		s.Errorf("the store has %s", got)
	}
}

// busy makes changes while the consumer of updates does not receive.
func (s *subject) busy() {
	first := s.put(s.one, "0", "a", "b")
	s.until(s.two, first)
	var last int64
	for n := range 50 {
		last = s.put(s.one, fmt.Sprint(n), fmt.Sprint("n/", n%10))
	}
	snapshot, changed := s.until(s.two, last)
	want := []string{"n/0", "n/1", "n/2", "n/3", "n/4", "n/5", "n/6", "n/7", "n/8", "n/9"}
	if diff := cmp.Diff(want, changed, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("the changed keys, want (-), got (+):\n%s", diff)
	}
	if got := s.content(snapshot); !strings.HasSuffix(got, "n/8=48 n/9=49") {
		s.Errorf("the store has %s", got)
	}
}
