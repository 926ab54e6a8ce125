package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/lock"
)

const (
	// commitLimit is how long a transaction may take if its context allows more.
	commitLimit = 5 * time.Second
	// leaseTTL is the life of leased keys without this process, in seconds.
	leaseTTL = 10
	// leaseEvery is how often the lease is renewed.
	leaseEvery = 3 * time.Second
)

// Commit commits a transaction; see kv.Committer. Other errors mean that etcd has refused it.
func (s *Store) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	lock.Outside("etcd")
	if err := t.Validate(); err != nil {
		return kv.Result{}, err
	}
	for again := false; ; again = true {
		result, lease, err := s.commit(ctx, t)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) && !again {
			s.forget(lease)
			continue
		}
		if err != nil {
			return kv.Result{}, fmt.Errorf("commit transaction: %w", err)
		}
		return result, nil
	}
}

// commit makes one attempt, with the lease that it returns.
func (s *Store) commit(ctx context.Context, t kv.Txn) (kv.Result, clientv3.LeaseID, error) {
	lease, err := s.leaseFor(ctx, t)
	if err != nil {
		return kv.Result{}, 0, err
	}
	var compares []clientv3.Cmp
	var changes, reads []clientv3.Op
	for _, c := range t.If {
		key := s.prefix + c.Key
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", c.Revision))
		if c.Value != nil {
			compares = append(compares, clientv3.Compare(clientv3.Value(key), "=", string(c.Value)))
		}
		reads = append(reads, clientv3.OpGet(key))
	}
	for _, c := range t.Then {
		changes = append(changes, s.change(c, lease))
	}
	var response *clientv3.TxnResponse
	err = s.do(ctx, request{limit: commitLimit, attempt: s.pageLimit(), write: len(changes) > 0,
		call: func(ctx context.Context, c *clientv3.Client) (err error) {
			response, err = c.Txn(ctx).If(compares...).Then(changes...).Else(reads...).Commit()
			if err == nil {
				err = s.check(response.Header)
			}
			return err
		}})
	if err != nil {
		return kv.Result{}, lease, err
	}
	result := kv.Result{Committed: response.Succeeded, Revision: response.Header.Revision}
	if !result.Committed {
		for _, r := range response.Responses {
			for _, pair := range r.GetResponseRange().GetKvs() {
				result.Current = append(result.Current, s.entry(pair))
			}
		}
	}
	return result, lease, nil
}

func (s *Store) change(c kv.Change, lease clientv3.LeaseID) clientv3.Op {
	key := s.prefix + c.Key
	switch {
	case c.Value == nil:
		return clientv3.OpDelete(key)
	case c.Leased:
		return clientv3.OpPut(key, string(c.Value), clientv3.WithLease(lease))
	}
	return clientv3.OpPut(key, string(c.Value))
}

// entry returns a key that exists, without the prefix.
func (s *Store) entry(pair *mvccpb.KeyValue) kv.Entry {
	value := pair.Value
	if value == nil {
		value = []byte{}
	}
	return kv.Entry{Key: strings.TrimPrefix(string(pair.Key), s.prefix), Value: value, Revision: pair.ModRevision}
}

// leaseFor returns the lease of this process, and creates it for the first leased key. It returns 0
// for a transaction without leased keys.
func (s *Store) leaseFor(ctx context.Context, t kv.Txn) (clientv3.LeaseID, error) {
	leased := false
	for _, c := range t.Then {
		leased = leased || c.Leased && c.Value != nil
	}
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if !leased || lease != 0 {
		return lease, nil
	}
	err := s.do(ctx, request{limit: commitLimit, attempt: time.Second,
		call: func(ctx context.Context, c *clientv3.Client) error {
			granted, err := c.Grant(ctx, leaseTTL)
			if err == nil {
				lease, err = granted.ID, s.check(granted.ResponseHeader)
			}
			return err
		}})
	if err != nil {
		return 0, fmt.Errorf("create lease: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == 0 { // the other one ends by itself
		s.lease = lease
	}
	return s.lease, nil
}

// forget makes the next leased key create another lease.
func (s *Store) forget(lease clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == lease {
		s.lease = 0
	}
}

// keepLease renews the lease until the store is closed.
func (s *Store) keepLease() {
	for {
		kv.Wait(s.life, leaseEvery)
		if s.life.Err() != nil {
			return
		}
		s.mu.Lock()
		lease := s.lease
		s.mu.Unlock()
		if lease == 0 {
			continue
		}
		err := s.do(s.life, request{limit: leaseEvery, attempt: time.Second,
			call: func(ctx context.Context, c *clientv3.Client) error {
				kept, err := c.KeepAliveOnce(ctx, lease)
				if err == nil {
					err = s.check(kept.ResponseHeader)
				}
				return err
			}})
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.forget(lease)
		}
	}
}
