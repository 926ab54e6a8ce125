package model

import "strings"

// OneOf writes names as alternatives: "a, b or c".
func OneOf[T ~string](names []T) string {
	var text strings.Builder
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			text.WriteString(" or ")
		case i > 0:
			text.WriteString(", ")
		}
		text.WriteString(string(n))
	}
	return text.String()
}
