# setting returns a setting as compose has it: the environment's, else .env's, else the default.
setting() { # NAME DEFAULT
	local value=${!1:-}
	[ -n "$value" ] || value=$(sed -n "s/^$1=//p" .env 2>/dev/null | tail -n 1)
	printf '%s' "${value:-$2}"
}
