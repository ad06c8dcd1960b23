// Files that tools left. The bridge gives them out for both halves of the login, which a
// browser does not show by itself: pictures and downloads are fetched here.

import { download } from './http.js';

const PICTURE = /^image\/(png|jpeg|gif|webp)$/; // nothing in which a script could run
const pictures = new Map(); // promises of object URLs, by address

// isFile says whether an address is that of a file of a session.
export function isFile(url) {
  return url.origin === location.origin && url.pathname.startsWith('/v1/agents/') && url.pathname.includes('/artifacts/');
}

// isPicture says whether a media type is shown as a picture.
export function isPicture(type) { return PICTURE.test(type ?? ''); }

// picture shows a file in an img when it comes near what is seen; lost is called if it cannot.
export function picture(img, address, lost) {
  const seen = new IntersectionObserver(async (entries) => {
    if (!entries.some((e) => e.isIntersecting)) return;
    seen.disconnect();
    try {
      img.src = await objectURL(address);
    } catch {
      lost();
    }
  }, { rootMargin: '400px' });
  img.addEventListener('error', lost);
  seen.observe(img);
}

// forgetPictures frees what the pictures of a session hold.
export function forgetPictures() {
  for (const url of pictures.values()) url.then(URL.revokeObjectURL, () => {});
  pictures.clear();
}

function objectURL(address) {
  if (!pictures.has(address)) {
    pictures.set(address, download(address).then((blob) => {
      if (isPicture(blob.type)) return URL.createObjectURL(blob);
      throw new Error(`${address} is no picture`);
    }));
  }
  return pictures.get(address);
}

// openFiles has links to files fetch them: a picture is opened, everything else is saved.
// An object URL belongs to this origin, so nothing but a picture is ever opened by one.
export function openFiles(app) {
  document.addEventListener('click', async (event) => {
    const link = event.target.closest?.('a[href]');
    if (!link || !isFile(link)) return;
    event.preventDefault();
    try {
      const blob = await download(link.href);
      const open = link.target === '_blank' && isPicture(blob.type);
      const a = document.createElement('a');
      a.href = URL.createObjectURL(open ? blob : blob.slice(0, blob.size, 'application/octet-stream'));
      if (open) [a.target, a.rel] = ['_blank', 'noopener'];
      else a.download = link.download || nameOf(link);
      a.click();
      setTimeout(() => URL.revokeObjectURL(a.href), 60_000); // when the browser has read it
    } catch (e) {
      app.announce(`The file was not fetched. ${e.message}`, true);
    }
  });
}

function nameOf(link) {
  const last = new URLSearchParams(link.search).get('name') ?? link.pathname;
  try {
    return decodeURIComponent(last.split('/').pop());
  } catch {
    return 'file';
  }
}
