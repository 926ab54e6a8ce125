package limit

import (
	"errors"
	"hash/maphash"
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// sourceOf returns the keyed hash of a request's source, so that a source takes the same
// memory however long its name is, and clients cannot make two names collide.
type sourceOf func(*http.Request) uint64

// newSource returns the function for a criterion. Without one, fallback is used.
func newSource(v *gateway.SourceCriterion, fallback gateway.SourceCriterion) (sourceOf, error) {
	if v == nil || *v == (gateway.SourceCriterion{}) {
		v = &fallback
	}
	seed := maphash.MakeSeed()
	switch {
	case v.IPStrategy != nil && (v.RequestHeaderName != "" || v.RequestHost),
		v.RequestHeaderName != "" && v.RequestHost:
		return nil, errors.New("read sourceCriterion: set one of ipStrategy, requestHeaderName and requestHost")
	case v.RequestHost:
		return func(r *http.Request) uint64 { return maphash.String(seed, r.Host) }, nil
	case v.RequestHeaderName != "":
		name := http.CanonicalHeaderKey(v.RequestHeaderName)
		return func(r *http.Request) uint64 { return maphash.String(seed, r.Header.Get(name)) }, nil
	}
	address, err := base.NewClientAddress(v.IPStrategy)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) uint64 { return maphash.Comparable(seed, address(r)) }, nil
}
