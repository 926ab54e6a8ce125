package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// Token is a join token: what a host needs to know to join a cluster.
type Token struct {
	// CA is the hash of the CA's certificate.
	CA [sha256.Size]byte
	// Secret proves that the host may join.
	Secret [secretSize]byte
	// Nodes are the addresses of the APIs of nodes, at most MaxNodes.
	Nodes []netip.AddrPort
}

// MaxNodes is how many addresses a token has at most.
const MaxNodes = 8

const (
	secretSize   = 16
	checksumSize = 4
	prefix       = "fljoin1."
	// maxText limits what ParseToken reads.
	maxText = 1024
)

// letters is the alphabet of tokens. It has no upper-case letters and needs no quotes in a shell.
var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewSecret returns a random secret of a token.
func NewSecret() (secret [secretSize]byte) {
	_, _ = rand.Read(secret[:]) // it never fails
	return secret
}

// HashSecret returns the name under which the store has a token: the hash of its secret.
func HashSecret(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:])
}

// SecretMatches reports in constant time whether a hash is that of the secret.
func SecretMatches(hash string, secret []byte) bool {
	return subtle.ConstantTimeCompare([]byte(hash), []byte(HashSecret(secret))) == 1
}

// String returns the text of the token: "fljoin1." and letters and digits. The last bytes are a
// checksum, so that a part of a token is recognised as such.
func (t Token) String() string {
	b := append(t.CA[:], t.Secret[:]...)
	b = append(b, byte(len(t.Nodes)))
	for _, node := range t.Nodes {
		addr := node.Addr().AsSlice()
		b = append(append(b, byte(len(addr))), addr...)
		b = binary.BigEndian.AppendUint16(b, node.Port())
	}
	return prefix + letters.EncodeToString(append(b, checksum(b)...))
}

func checksum(b []byte) []byte {
	sum := sha256.Sum256(append([]byte(prefix), b...))
	return sum[:checksumSize]
}

// ParseToken reads the text of a token. It ignores white space, which copies of long lines have.
func ParseToken(text string) (Token, error) {
	if len(text) > maxText {
		return Token{}, fmt.Errorf("read join token: it has %d characters: want at most %d", len(text), maxText)
	}
	text = strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, text)
	body, found := strings.CutPrefix(text, prefix)
	switch {
	case !found && strings.HasPrefix(text, "fljoin"):
		return Token{}, errors.New("read join token: it is of another version of Fairlead: install the version of " +
			"the node that created it")
	case !found:
		return Token{}, fmt.Errorf(
			"read join token: want a text that begins with %q, as `fairlead cluster token create` "+
				"prints it", prefix)
	}
	b, err := letters.DecodeString(body)
	if err != nil || len(b) < checksumSize || letters.EncodeToString(b) != body ||
		subtle.ConstantTimeCompare(checksum(b[:len(b)-checksumSize]), b[len(b)-checksumSize:]) != 1 {
		return Token{}, errors.New("read join token: it is incomplete or was changed: copy it again")
	}
	return decodeToken(b[:len(b)-checksumSize])
}

// decodeToken reads the bytes of a token, without its checksum.
func decodeToken(b []byte) (t Token, err error) {
	broken := errors.New("read join token: its content is not valid: create another token")
	if len(b) < len(t.CA)+len(t.Secret)+1 {
		return t, broken
	}
	b = b[copy(t.CA[:], b):]
	b = b[copy(t.Secret[:], b):]
	count := int(b[0])
	b = b[1:]
	for range count {
		if len(b) < 1 || len(b) < 1+int(b[0])+2 {
			return Token{}, broken
		}
		addr, ok := netip.AddrFromSlice(b[1 : 1+b[0]])
		port := binary.BigEndian.Uint16(b[1+b[0]:])
		if !ok || port == 0 || !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() || addr.Is4In6() {
			return Token{}, broken
		}
		t.Nodes = append(t.Nodes, netip.AddrPortFrom(addr, port))
		b = b[3+int(b[0]):]
	}
	if len(b) > 0 || count == 0 || count > MaxNodes {
		return Token{}, broken
	}
	return t, nil
}
