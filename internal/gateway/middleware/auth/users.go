package auth

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// readUsers returns the lines of users: those of a file in the format of Apache's
// htpasswd and htdigest, then the configured ones, which replace them. Empty lines and
// comments are left out.
func readUsers(file string, users []string) ([]string, error) {
	var lines []string
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read users: %w", err)
		}
		lines = strings.Split(string(text), "\n")
	}
	var result []string
	for _, line := range append(lines, users...) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			result = append(result, line)
		}
	}
	if len(result) == 0 {
		return nil, errors.New("no user is set: set users or usersFile")
	}
	return result, nil
}

// realmOr returns the realm of a challenge, by default Traefik's.
func realmOr(realm string) string {
	if realm == "" {
		return "traefik"
	}
	return realm
}

// quoteRealm returns a realm as a quoted string (RFC 9110, section 5.6.4).
func quoteRealm(realm string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\r", "", "\n", "").Replace(realm) + `"`
}
