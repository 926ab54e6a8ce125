package etcd

import (
	"bytes"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// LaterField is the field that Later adds to values.
const LaterField = `"addedLater":{"by":"a later version"}`

// Later starts a Recorder that adds a field to each value that its clients write, as a later version of them would.
func (c *Cluster) Later() *Recorder {
	return c.record(func(r *etcdserverpb.TxnRequest) {
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if put := op.GetRequestPut(); put != nil {
				put.Value = later(put.Value)
			}
		}
	})
}

// later adds the field to a JSON object.
func later(value []byte) []byte {
	inside, is := bytes.CutPrefix(value, []byte("{"))
	if !is || bytes.Contains(value, []byte(LaterField)) {
		return value
	}
	separator := ","
	if string(inside) == "}" {
		separator = ""
	}
	return slices.Concat([]byte("{"+LaterField+separator), inside)
}
