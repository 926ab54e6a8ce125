package trust

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A node greets another one with the server name (RFC 6066, section 3) of its first TLS message. So the other one knows
// before the handshake that a host of the cluster opens the connection, and not a container behind the host's address.
// The name has a MAC with a key that only nodes have. It is no proof of identity, which is the handshake's task: who
// reads the packets of a LAN can repeat a greeting for greetingAge.

// greetingAge is how much the clocks of two nodes may differ.
const greetingAge = 10 * time.Minute

// Greeting returns the server name with which the node from greets the node to.
func Greeting(clusterKey []byte, from, to string, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 16)
	return strings.Join([]string{from, at, greetingMAC(clusterKey, from, to, at)}, ".")
}

// Greeted returns the id of the node that greets the node to with a server name. It returns false if no node of the
// cluster does, or not about now.
func Greeted(clusterKey []byte, to, name string, now time.Time) (from string, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || !ValidID(parts[0]) {
		return "", false
	}
	at, err := strconv.ParseInt(parts[1], 16, 64)
	if err != nil || now.Sub(time.Unix(at, 0)).Abs() > greetingAge {
		return "", false
	}
	mac := greetingMAC(clusterKey, parts[0], to, parts[1])
	if !hmac.Equal([]byte(mac), []byte(parts[2])) {
		return "", false
	}
	return parts[0], true
}

func greetingMAC(clusterKey []byte, from, to, at string) string {
	key, err := hkdf.Key(sha256.New, clusterKey, nil, "fairlead greeting", KeySize)
	if err != nil {
		panic(fmt.Sprintf("derive a key from the cluster's key: %v", err)) // only in FIPS mode, for shorter keys
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(from + "/" + to + "/" + at))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
