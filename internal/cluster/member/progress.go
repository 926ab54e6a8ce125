package member

import (
	"slices"
	"strings"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// progress says how far the consumers are. Records that change all the time do not count: they would hide
// whether a node lacks any other change.
type progress struct {
	// applied is the revision of the snapshot with the last change that the consumers have. It is not
	// lower than the change's own revision.
	applied int64
	// needed is a revision that a node must have applied to have the same records. It is not higher
	// than the last change's own revision.
	needed int64
}

// after returns the progress after another update. before is the consumers' previous snapshot, or nil.
// Revisions start again with a store that was restored from an older copy.
func (p progress) after(before kv.Snapshot, u kv.Update) progress {
	if before == nil || u.Snapshot.Revision() < before.Revision() {
		return progressOf(u.Snapshot)
	}
	for _, key := range u.Changed {
		if volatile(key) {
			continue
		}
		p.applied = max(p.applied, u.Snapshot.Revision())
		if e, exists := u.Snapshot.Get(key); exists {
			p.needed = max(p.needed, e.Revision)
		} else { // it was deleted after the previous snapshot
			p.needed = max(p.needed, before.Revision()+1)
		}
	}
	return p
}

// progressOf returns the progress of consumers that have only this snapshot.
func progressOf(s kv.Snapshot) progress {
	p := progress{applied: s.Revision()}
	for e := range s.Under("") {
		if !volatile(e.Key) {
			p.needed = max(p.needed, e.Revision)
		}
	}
	return p
}

// volatile reports whether a record changes all the time, or describes only a node.
func volatile(key string) bool {
	return strings.HasPrefix(key, record.Alives) || strings.HasPrefix(key, record.Clones) ||
		strings.HasPrefix(key, record.Addresses) ||
		strings.HasPrefix(key, record.CertificateLocks)
}

// union returns the keys of both lists, which are sorted.
func union(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
