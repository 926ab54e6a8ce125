package auth

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// passwordHash returns whether a password has a hash.
type passwordHash func(password string) bool

// parseHash reads the hash of a password in one of htpasswd's formats: bcrypt, MD5
// ($apr1$, and $1$ of crypt(3)) or SHA-1 ({SHA}).
func parseHash(hash string) (passwordHash, error) {
	switch {
	case strings.HasPrefix(hash, "$2"):
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, fmt.Errorf("read bcrypt hash: %w (in a compose file, write $$ for each $)", err)
		}
		return func(password string) bool {
			return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
		}, nil
	case strings.HasPrefix(hash, "$apr1$"), strings.HasPrefix(hash, "$1$"):
		parts := strings.Split(hash, "$")
		if len(parts) != 4 || len(parts[3]) != 22 {
			return nil, errors.New("read MD5 hash: want $apr1$SALT$HASH (in a compose file, write $$ for each $)")
		}
		magic, salt := "$"+parts[1]+"$", parts[2]
		return func(password string) bool {
			return subtle.ConstantTimeCompare([]byte(md5Crypt(password, salt, magic)), []byte(hash)) == 1
		}, nil
	case strings.HasPrefix(hash, "{SHA}"):
		want, err := base64.StdEncoding.DecodeString(hash[len("{SHA}"):])
		if err != nil || len(want) != sha1.Size {
			return nil, errors.New("read SHA-1 hash: want {SHA} and 28 characters of base64")
		}
		return func(password string) bool {
			sum := sha1.Sum([]byte(password))
			return subtle.ConstantTimeCompare(sum[:], want) == 1
		}, nil
	}
	return nil, errors.New("the hash's format is unknown: make it with `htpasswd -nB NAME`")
}

// md5Crypt hashes a password with the MD5 algorithm of crypt(3) by Poul-Henning Kamp;
// Apache's variant differs in the magic string only.
func md5Crypt(password, salt, magic string) string {
	salt = salt[:min(len(salt), 8)]
	inner := md5.Sum([]byte(password + salt + password))
	first := []byte(password + magic + salt)
	for n := len(password); n > 0; n -= md5.Size {
		first = append(first, inner[:min(n, md5.Size)]...)
	}
	for n := len(password); n > 0; n >>= 1 {
		if n&1 != 0 {
			first = append(first, 0)
		} else {
			first = append(first, password[:1]...)
		}
	}
	sum := md5.Sum(first)
	for round := range 1000 {
		var text []byte
		text = appendIf(text, round&1 != 0, password, string(sum[:]))
		if round%3 != 0 {
			text = append(text, salt...)
		}
		if round%7 != 0 {
			text = append(text, password...)
		}
		text = appendIf(text, round&1 == 0, password, string(sum[:]))
		sum = md5.Sum(text)
	}
	return magic + salt + "$" + encodeCrypt(sum)
}

// appendIf appends yes if the condition is true, else no.
func appendIf(text []byte, condition bool, yes, no string) []byte {
	if condition {
		return append(text, yes...)
	}
	return append(text, no...)
}

// encodeCrypt encodes a sum in the order and the alphabet of crypt(3).
func encodeCrypt(sum [md5.Size]byte) string {
	const alphabet = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	var text strings.Builder
	put := func(value uint32, characters int) {
		for range characters {
			text.WriteByte(alphabet[value&0x3f])
			value >>= 6
		}
	}
	for _, i := range [][3]int{{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}} {
		put(uint32(sum[i[0]])<<16|uint32(sum[i[1]])<<8|uint32(sum[i[2]]), 4)
	}
	put(uint32(sum[11]), 2)
	return text.String()
}
