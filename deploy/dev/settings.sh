# setting returns a setting as compose has it: the environment's, else .env's, else the default.
setting() { # NAME DEFAULT
	local value=${!1:-}
	[ -n "$value" ] || value=$(sed -n "s/^$1=//p" .env 2>/dev/null | tail -n 1 | sed -E "s/^([\"'])(.*)\\1\$/\\2/")
	printf '%s' "${value:-$2}"
}

# enabled says whether COMPOSE_PROFILES names one of the profiles.
enabled() { # PROFILE…
	local profile profiles
	profiles=,$(setting COMPOSE_PROFILES ''),
	for profile; do
		case $profiles in *",$profile,"*) return 0 ;; esac
	done
	return 1
}

# How a container is, as a format of docker inspect: its health; without a health check, its state; "done" if it was to
# run once and has. The last health of a container that has stopped is no news.
health='{{if and .State.Running .State.Health}}{{.State.Health.Status}}'
health+='{{else if and (eq .State.Status "exited") (eq .State.ExitCode 0) (eq .HostConfig.RestartPolicy.Name "no" "")}}done'
health+='{{else}}{{.State.Status}}{{end}}'
