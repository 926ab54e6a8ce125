package certificates

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"

	"github.com/caddyserver/certmagic"
)

// MaxValue is the size of a value in bytes that the storage accepts.
const MaxValue = 256 << 10

var _ certmagic.Storage = (*Certificates)(nil)

// lockOf returns the name of the lock of a value. RESOLVER/certificates/ID and RESOLVER/attempts/ID have the
// same, the key of the certificate; RESOLVER/account has its own key.
func lockOf(key string) string {
	if resolver, id, found := strings.Cut(key, "/attempts/"); found {
		return resolver + "/certificates/" + id
	}
	return key
}

// Store implements certmagic.Storage. The process must have the lock of the value.
func (c *Certificates) Store(ctx context.Context, key string, value []byte) error {
	change, err := c.sealed(record.Certificates+key, value)
	if err == nil {
		_, err = c.write(ctx, lockOf(key), change)
	}
	if err != nil {
		return fmt.Errorf("store %s in the cluster: %w", key, err)
	}
	return nil
}

// Delete implements certmagic.Storage. The process must have the lock of the value.
func (c *Certificates) Delete(ctx context.Context, key string) error {
	if _, err := c.write(ctx, lockOf(key), kv.Change{Key: record.Certificates + key}); err != nil {
		return fmt.Errorf("delete %s in the cluster: %w", key, err)
	}
	return nil
}

// writeAgain is how long a change waits that failed, as long as the lock is not lost and the caller waits.
const writeAgain = 500 * time.Millisecond

// write commits a change under a lock, waits for the snapshot with it, and returns its revision. It repeats the
// change until ctx ends or the lock is lost.
func (c *Certificates) write(ctx context.Context, lock string, change kv.Change) (int64, error) {
	l, err := c.holding(lock)
	if err != nil {
		return 0, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.held, cancel)()
	for {
		revision, err := l.change(ctx, []kv.Change{change})
		if err == nil {
			_ = c.await(ctx, revision) // it is committed
			return revision, nil
		}
		if kv.Wait(waiting, writeAgain); waiting.Err() != nil {
			return 0, err
		}
	}
}

// Load implements certmagic.Storage.
func (c *Certificates) Load(_ context.Context, key string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot == nil {
		return nil, fs.ErrNotExist
	}
	e, exists := c.snapshot.Get(record.Certificates + key)
	if !exists {
		return nil, fs.ErrNotExist
	}
	return c.open(e)
}

// Exists implements certmagic.Storage.
func (c *Certificates) Exists(ctx context.Context, key string) bool {
	_, err := c.Load(ctx, key)
	return err == nil
}

// List implements certmagic.Storage.
func (c *Certificates) List(_ context.Context, path string, _ bool) (keys []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot == nil {
		return nil, nil
	}
	for e := range c.snapshot.Under(record.Certificates + strings.TrimSuffix(path, "/") + "/") {
		keys = append(keys, strings.TrimPrefix(e.Key, record.Certificates))
	}
	return keys, nil
}

// Stat implements certmagic.Storage.
func (c *Certificates) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	value, err := c.Load(ctx, key)
	return certmagic.KeyInfo{Key: key, Size: int64(len(value)), IsTerminal: true}, err
}
