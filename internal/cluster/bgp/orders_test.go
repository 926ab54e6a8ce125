package bgp

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
)

// TestRemoveAddedPeer removes a router that the node's snapshot does not have yet, then one that the cluster does not
// have any more, although the snapshot still has it.
func TestRemoveAddedPeer(t *testing.T) {
	store := kvtest.New()
	n := New(Config{Store: store.Client(), Log: slog.New(slog.DiscardHandler)})
	n.latest.Replace(member.Self{}, kv.NewTable(1, nil))
	peer := api.ClusterBGPPeer{Address: netip.MustParseAddr("192.0.2.1"), AS: 64512, LocalAS: 64513}
	if _, err := n.AddPeer(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	added := store.Snapshot()
	order := api.ClusterBGPPeerRequest{Address: peer.Address}
	if r, err := n.RemovePeer(t.Context(), order); err != nil || !r.Changed {
		t.Errorf("remove the router: %+v, %v", r, err)
	}
	if _, remains := store.Snapshot().Get(record.Key(record.BGPPeers, "192.0.2.1")); remains {
		t.Error("the router remains")
	}
	n.latest.Replace(member.Self{}, added)
	_, err := n.RemovePeer(t.Context(), order)
	if f := (*api.Fault)(nil); !errors.As(err, &f) || f.Code != api.NotFound {
		t.Errorf("remove the router again: %v, want %s", err, api.NotFound)
	}
}
