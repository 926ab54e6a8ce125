package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"fairlead/internal/cluster/kv"
)

// silent is a client whose server is not asked.
type silent struct{ *testing.T }

// RequestProgress implements progress.
func (s silent) RequestProgress(context.Context) error {
	s.Error("the server is asked")
	return nil
}

// TestArrivedResponses breaks the connection of a watch after responses have arrived. All are handled.
func TestArrivedResponses(t *testing.T) {
	const arrived = 64
	responses, broken := make(chan clientv3.WatchResponse, arrived), make(chan struct{})
	for range arrived {
		responses <- clientv3.WatchResponse{}
	}
	close(broken)
	handled := 0
	s := &Store{silence: time.Hour}
	err := s.receive(t.Context(), silent{t}, responses, broken, func(kv.Batch) error { handled++; return nil })
	if err == nil || handled != arrived {
		t.Errorf("%d responses of %d are handled before the watch ends with %v", handled, arrived, err)
	}
}
