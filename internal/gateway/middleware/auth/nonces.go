package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

const (
	// nonceLife is how long a client can use a nonce.
	nonceLife = 5 * time.Minute
	// maxNonces bounds the memory for used nonces. If there are more, all become stale.
	maxNonces = 1 << 14
)

// nonces issues nonces without storing them: a nonce has the time and a keyed hash of it.
// Only used ones are stored, so that no request can be sent again.
type nonces struct {
	now func() time.Time

	mu   sync.Mutex
	key  [32]byte
	used map[string]*counts
}

// counts has the counts that were used with a nonce: the highest, and a bit for each of
// the 64 below it, because parallel connections reorder requests.
type counts struct {
	highest, window uint64
}

func newNonces(now func() time.Time) *nonces {
	n := &nonces{now: now, used: map[string]*counts{}}
	_, _ = rand.Read(n.key[:]) // It never fails: see its documentation.
	return n
}

// issue returns a new nonce.
func (n *nonces) issue() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], uint64(n.now().UnixNano()))
	_, _ = rand.Read(head[8:])
	return base64.RawURLEncoding.EncodeToString(append(head[:], n.sign(head[:])...))
}

func (n *nonces) sign(head []byte) []byte {
	mac := hmac.New(sha256.New, n.key[:])
	mac.Write(head)
	return mac.Sum(nil)[:16]
}

// use returns whether a nonce is valid and was not used with this count. A count of 0 is
// that of a client without counts: it uses a nonce once.
func (n *nonces) use(nonce string, count uint64) bool {
	raw, err := base64.RawURLEncoding.DecodeString(nonce)
	if err != nil || len(raw) != 32 {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	age := n.now().Sub(time.Unix(0, int64(binary.BigEndian.Uint64(raw))))
	if !hmac.Equal(raw[16:], n.sign(raw[:16])) || age < 0 || age > nonceLife {
		return false
	}
	known, ok := n.used[string(raw)]
	if !ok {
		if len(n.used) >= maxNonces {
			clear(n.used)
			_, _ = rand.Read(n.key[:])
			return false
		}
		n.used[string(raw)] = &counts{highest: count, window: 1}
		return true
	}
	return count > 0 && known.highest > 0 && known.add(count)
}

// add records a count, and returns false if it was used or is too old.
func (c *counts) add(count uint64) bool {
	if count > c.highest {
		c.window = c.window<<(count-c.highest) | 1
		c.highest = count
		return true
	}
	bit := uint64(1) << (c.highest - count)
	if c.highest-count >= 64 || c.window&bit != 0 {
		return false
	}
	c.window |= bit
	return true
}
