package member

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// The limits of tokens.
const (
	tokenLife    = time.Hour
	maxTokenLife = 30 * 24 * time.Hour
	maxTokenUses = 1000
	// tokenID is how many characters of a token's hash identify it to users.
	tokenID = 12
)

// CreateToken creates a join token. It deletes those that have expired.
func (m *Member) CreateToken(ctx context.Context, r api.ClusterTokenRequest) (api.ClusterToken, error) {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return api.ClusterToken{}, err
	}
	if r.Life == 0 {
		r.Life = tokenLife
	}
	if r.Uses == 0 {
		r.Uses = 1
	}
	if r.Life < time.Second || r.Life > maxTokenLife || r.Uses < 1 || r.Uses > maxTokenUses {
		return api.ClusterToken{}, api.Faultf(api.Invalid, "create token: want a life of 1s to %s and 1 to %d uses",
			maxTokenLife, maxTokenUses)
	}
	f, secret := m.self(), trust.NewSecret()
	text := trust.Token{CA: trust.Hash(f.CA), Secret: secret, Nodes: tokenNodes(f, snapshot)}.String()
	hash := trust.HashSecret(secret[:])
	t := record.Token{Expires: m.cfg.Now().Add(r.Life).UTC(), Uses: r.Uses}
	key := record.Key(record.Tokens, hash)
	changes := append([]kv.Change{{Key: key, Value: record.Encode(t)}}, expiredTokens(snapshot, m.cfg.Now())...)
	result, err := commit(ctx, m, kv.Txn{Then: changes})
	if err != nil {
		return api.ClusterToken{}, fmt.Errorf("create token: %w", err)
	}
	m.awaitOwn(ctx, result.Revision)
	return api.ClusterToken{ID: hash[:tokenID], Text: text, Expires: t.Expires, Uses: t.Uses}, nil
}

// tokenNodes returns the addresses in a token: first those of this node.
func tokenNodes(f file, s kv.Snapshot) []netip.AddrPort {
	var all []netip.AddrPort
	add := func(addrs []netip.Addr, port uint16) {
		for _, a := range addrs {
			if at := netip.AddrPortFrom(a, port); len(all) < trust.MaxNodes && !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	add(f.Addresses, f.Port)
	nodes := nodesOf(s)
	for _, id := range sortedKeys(nodes) {
		add(nodes[id].Addresses, nodes[id].Port)
	}
	return all
}

// expiredTokens deletes at most as many tokens as one transaction may.
func expiredTokens(s kv.Snapshot, now time.Time) (changes []kv.Change) {
	for e := range s.Under(record.Tokens) {
		t, err := record.Decode[record.Token](e)
		if len(changes) < maxChanges && (err != nil || now.After(t.Expires)) {
			changes = append(changes, kv.Change{Key: e.Key})
		}
	}
	return changes
}

// Tokens returns the join tokens that are valid.
func (m *Member) Tokens() ([]api.ClusterToken, error) {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return nil, err
	}
	all := []api.ClusterToken{}
	for e := range snapshot.Under(record.Tokens) {
		t, err := record.Decode[record.Token](e)
		hash := strings.TrimPrefix(e.Key, record.Tokens)
		if err == nil && t.Uses > 0 && len(hash) >= tokenID && m.cfg.Now().Before(t.Expires) {
			all = append(all, api.ClusterToken{ID: hash[:tokenID], Expires: t.Expires, Uses: t.Uses})
		}
	}
	return all, nil
}

// RemoveToken deletes a join token by its id.
func (m *Member) RemoveToken(ctx context.Context, id string) error {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return err
	}
	var changes []kv.Change
	if len(id) >= tokenID {
		for e := range snapshot.Under(record.Key(record.Tokens, id)) {
			changes = append(changes, kv.Change{Key: e.Key})
		}
	}
	if len(changes) != 1 {
		return api.Faultf(api.NotFound, "there is no token %q: list them with `fairlead cluster token ls`", id)
	}
	if _, err := commit(ctx, m, kv.Txn{Then: changes}); err != nil {
		return fmt.Errorf("remove token %s: %w", id, err)
	}
	return nil
}
