package record_test

import (
	"strings"
	"testing"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// hostile panics when it is decoded.
type hostile struct{}

func (*hostile) UnmarshalJSON([]byte) error { panic("bad value") }

// TestDecodeRecovers reads a record whose decoding panics.
func TestDecodeRecovers(t *testing.T) {
	_, err := record.Decode[hostile](kv.Entry{Key: "nets/web", Value: []byte("{}")})
	if err == nil || !strings.Contains(err.Error(), "read record nets/web: internal error at ") {
		t.Errorf("error %v", err)
	}
}
