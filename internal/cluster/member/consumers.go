package member

import (
	"context"
	"fmt"

	"fairlead/internal/cluster/kv"
)

// Commit commits a transaction for a consumer. Returns kv.ErrUnavailable (errors.Is) also if the host
// belongs to no cluster.
func (m *Member) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	m.mu.Lock()
	store := m.store
	m.mu.Unlock()
	if store == nil {
		return kv.Result{}, fmt.Errorf("commit transaction: %w", kv.ErrUnavailable)
	}
	return store.Commit(ctx, t)
}
